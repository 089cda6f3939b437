# The image that config/manager and charts/berth run: docker build -t REGISTRY/berth:TAG .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG COMMIT=
ARG DATE=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT -X main.date=$DATE" -o /berth ./cmd/berth

FROM gcr.io/distroless/static:nonroot
COPY --from=build /berth /berth
USER 65532:65532
ENTRYPOINT ["/berth"]
