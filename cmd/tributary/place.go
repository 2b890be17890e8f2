package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"tributary/pipeline/objects"
)

// place is a place of objects: a folder, or a bucket and a prefix in it.
type place struct{ dir, bucket, prefix string }

// errPlace ends the errors about a place. No error repeats a URL that may have a password.
var errPlace = errors.New("write a folder, file:///DIR or s3://BUCKET/PREFIX")

// parsePlace parses the place that a flag or a setting names. It does not check whether the place exists.
func parsePlace(name, text string) (place, error) {
	p, err := parseFolderOrURL(text)
	if err != nil {
		return place{}, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

func parseFolderOrURL(out string) (place, error) {
	scheme, _, isURL := strings.Cut(out, "://")
	if !isURL {
		for _, scheme := range []string{"s3:", "file:"} {
			if strings.HasPrefix(strings.ToLower(out), scheme) {
				return place{}, fmt.Errorf("// is missing behind %s %w", scheme, errPlace)
			}
		}
		return place{dir: out}, nil
	}
	u, err := url.Parse(out)
	switch {
	case err != nil:
		return place{}, fmt.Errorf("this is no URL: %w", errPlace)
	case u.User != nil:
		return place{}, errors.New("credentials do not belong in the URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
	case u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return place{}, fmt.Errorf("a URL with ? or # is not known: %w", errPlace)
	case u.Scheme == "file":
		return fileOut(u)
	case u.Scheme == "s3":
		return bucketOut(u)
	}
	return place{}, fmt.Errorf("URLs of %s are not known: %w", scheme, errPlace)
}

// fileOut parses a URL of a folder.
func fileOut(u *url.URL) (place, error) {
	if u.Host != "" && u.Host != "localhost" || strings.Trim(u.Path, "/") == "" {
		return place{}, errors.New("the URL names no folder of this machine: write file:///DIR, with three slashes")
	}
	return place{dir: filepath.FromSlash(u.Path)}, nil
}

// bucketOut parses a URL of a bucket.
func bucketOut(u *url.URL) (place, error) {
	if err := s3utils.CheckValidBucketNameStrict(u.Host); err != nil {
		return place{}, fmt.Errorf("%q is not the name of a bucket: write s3://BUCKET/PREFIX", u.Host)
	}
	prefix := strings.Trim(u.Path, "/")
	for part := range strings.SplitSeq(prefix, "/") {
		if prefix != "" && slices.Contains([]string{"", ".", ".."}, part) {
			return place{}, fmt.Errorf("the prefix %q has an empty part or one of dots: write s3://BUCKET/PREFIX", prefix)
		}
	}
	return place{bucket: u.Host, prefix: prefix}, nil
}

// Limits of an export that does not follow: of a request for the credentials of the machine, and of requests to a
// store that is away.
const (
	credentialsTimeout = 5 * time.Second
	storeLimit         = time.Minute
)

// bucket opens the bucket of a place. Endpoint, region and credentials come from the AWS_ settings.
func (c *config) bucket(out place) (*objects.Bucket, error) {
	host, secure := "s3.amazonaws.com", true
	if endpoint := cmp.Or(c.S3Endpoint, c.AWSEndpoint); endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return nil, errors.New("AWS_ENDPOINT_URL is not the address of an object store: write https://HOST or http://HOST:PORT")
		}
		host, secure = u.Host, u.Scheme == "https"
	}
	keys := credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{},
		&credentials.IAM{Client: &http.Client{Timeout: credentialsTimeout}},
	})
	if v, err := keys.GetWithContext(nil); err != nil || v.SignerType.IsAnonymous() {
		return nil, errors.New("no credentials of the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for those of ~/.aws/credentials")
	}
	client, err := minio.New(host, &minio.Options{
		Creds: keys, Secure: secure, Region: cmp.Or(c.AWSRegion, c.AWSDefaultRegion),
		MaxRetries: 1, // objects.Bucket repeats requests itself, and logs why
	})
	if err != nil {
		return nil, fmt.Errorf("object store: %w: check AWS_ENDPOINT_URL", err)
	}
	return &objects.Bucket{Client: client, Name: out.bucket, Prefix: out.prefix}, nil
}
